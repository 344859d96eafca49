// Disparity with ONNX Runtime's C++ API alone: predict rt.onnx left.ppm right.ppm disparity.pfm
//
// Images are binary PPM (P6, 8 bits): `magick left.png left.ppm`, or cv::Mat in your own program.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

constexpr int64_t kStep = 32;  // sides that the network takes are multiples of this

struct Image {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> rgb;  // height x width x 3
};

Image read_ppm(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  Image image;
  int largest = 0;
  file >> kind >> image.width >> image.height >> largest;
  file.get();  // the one white space before the pixels
  if (!file || kind != "P6" || largest != 255) throw std::runtime_error(path + " is no binary 8-bit PPM file (P6).");
  image.rgb.resize(image.height * image.width * 3);
  if (!file.read(reinterpret_cast<char*>(image.rgb.data()), image.rgb.size()))
    throw std::runtime_error(path + " is cut short.");
  return image;
}

// (3, rows, columns) in [0, 255]; the top row and the right column are repeated until both sides fit.
std::vector<float> padded(const Image& image, int64_t rows, int64_t columns) {
  std::vector<float> values(3 * rows * columns);
  const int64_t above = rows - image.height;
  for (int64_t channel = 0; channel < 3; ++channel)
    for (int64_t y = 0; y < rows; ++y)
      for (int64_t x = 0; x < columns; ++x) {
        const int64_t row = std::max<int64_t>(y - above, 0), column = std::min(x, image.width - 1);
        values[(channel * rows + y) * columns + x] = image.rgb[(row * image.width + column) * 3 + channel];
      }
  return values;
}

// PFM keeps its rows from the bottom up; a negative scale says little-endian.
void write_pfm(const std::string& path, const float* field, int64_t rows, int64_t columns, const Image& image) {
  std::ofstream file(path, std::ios::binary);
  file << "Pf\n" << image.width << " " << image.height << "\n-1.0\n";
  for (int64_t y = rows - 1; y >= rows - image.height; --y)
    file.write(reinterpret_cast<const char*>(field + y * columns), image.width * sizeof(float));
  if (!file) throw std::runtime_error("Cannot write " + path + ".");
}

int main(int count, char** words) try {
  if (count != 5) throw std::runtime_error("usage: predict NETWORK.onnx LEFT.ppm RIGHT.ppm DISPARITY.pfm");
  const Image left = read_ppm(words[2]), right = read_ppm(words[3]);
  if (left.height != right.height || left.width != right.width)
    throw std::runtime_error("The two images differ in size.");
  const int64_t rows = (left.height + kStep - 1) / kStep * kStep, columns = (left.width + kStep - 1) / kStep * kStep;

  Ort::Env environment(ORT_LOGGING_LEVEL_ERROR, "matchattention");
  Ort::Session session(environment, words[1], Ort::SessionOptions());
  const Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const std::array<int64_t, 4> shape{1, 3, rows, columns};
  std::array<std::vector<float>, 2> pixels{padded(left, rows, columns), padded(right, rows, columns)};
  std::vector<Ort::Value> inputs;
  for (auto& view : pixels)
    inputs.push_back(Ort::Value::CreateTensor<float>(memory, view.data(), view.size(), shape.data(), shape.size()));

  const char* input_names[] = {"left", "right"};  // `initial` may be left out
  const char* output_names[] = {"disparity", "disparity_right"};
  const auto outputs = session.Run(Ort::RunOptions(), input_names, inputs.data(), 2, output_names, 2);
  write_pfm(words[4], outputs[0].GetTensorData<float>(), rows, columns, left);
  std::cout << words[4] << ": " << left.height << "x" << left.width << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
