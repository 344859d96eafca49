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

constexpr int64_t kStep = 32;     // sides that the network takes are multiples of this
constexpr int64_t kLarge = 2048;  // px a side: beyond that the network starts from its own answer at half resolution

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
  if (!file || kind != "P6" || largest != 255 || std::min(image.width, image.height) < 1)
    throw std::runtime_error(path + " is no binary 8-bit PPM file (P6).");
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

// The mean of each 2x2 of (3, rows, columns), whose sides are even.
std::vector<float> halved(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> half(values.size() / 4);
  for (int64_t y = 0; y < 3 * rows / 2; ++y)  // rows of all channels: none lies in two
    for (int64_t x = 0; x < columns / 2; ++x) {
      const float* corner = &values[2 * y * columns + 2 * x];
      half[y * (columns / 2) + x] = (corner[0] + corner[1] + corner[columns] + corner[columns + 1]) / 4;
    }
  return half;
}

// `initial` (2, rows / 16, columns / 16, 2) in tokens of 32 px: x and y of both views, from their disparities at half
// resolution. A match lies to the left in the right view, and the other way round.
std::vector<float> start_from(const std::vector<Ort::Value>& half, int64_t rows, int64_t columns) {
  std::vector<float> start;
  for (int view = 0; view < 2; ++view) {
    const float* disparity = half[view].GetTensorData<float>();
    const float scale = (view == 0 ? -1.f : 1.f) * 2 / kStep / 4;  // of the sum of the four pixels in a token's middle
    for (int64_t y = 7; y < rows; y += 16)
      for (int64_t x = 7; x < columns; x += 16) {
        const float* middle = disparity + y * columns + x;
        start.push_back(scale * (middle[0] + middle[1] + middle[columns] + middle[columns + 1]));
        start.push_back(0);
      }
  }
  return start;
}

// `disparity` and `disparity_right`, (1, rows, columns) each; an empty `start` is left out.
std::vector<Ort::Value> run(Ort::Session& session, std::vector<float>& left, std::vector<float>& right, int64_t rows,
                            int64_t columns, std::vector<float> start = {}) {
  const Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const std::array<int64_t, 4> shape{1, 3, rows, columns}, tokens{2, rows / kStep, columns / kStep, 2};
  std::vector<Ort::Value> inputs;
  for (auto* view : {&left, &right})
    inputs.push_back(Ort::Value::CreateTensor<float>(memory, view->data(), view->size(), shape.data(), shape.size()));
  if (!start.empty())
    inputs.push_back(Ort::Value::CreateTensor<float>(memory, start.data(), start.size(), tokens.data(), tokens.size()));
  const char* input_names[] = {"left", "right", "initial"};
  const char* output_names[] = {"disparity", "disparity_right"};
  return session.Run(Ort::RunOptions(), input_names, inputs.data(), inputs.size(), output_names, 2);
}

int main(int count, char** words) try {
  if (count != 5) throw std::runtime_error("usage: predict NETWORK.onnx LEFT.ppm RIGHT.ppm DISPARITY.pfm");
  const Image left = read_ppm(words[2]), right = read_ppm(words[3]);
  if (left.height != right.height || left.width != right.width)
    throw std::runtime_error("The two images differ in size.");
  const bool large = std::max(left.height, left.width) > kLarge;
  const int64_t step = large ? 2 * kStep : kStep;
  const int64_t rows = (left.height + step - 1) / step * step, columns = (left.width + step - 1) / step * step;

  Ort::Env environment(ORT_LOGGING_LEVEL_ERROR, "matchattention");
  Ort::Session session(environment, words[1], Ort::SessionOptions());
  std::vector<float> first = padded(left, rows, columns), second = padded(right, rows, columns), start;
  if (large) {
    std::vector<float> small_first = halved(first, rows, columns), small_second = halved(second, rows, columns);
    start = start_from(run(session, small_first, small_second, rows / 2, columns / 2), rows / 2, columns / 2);
  }
  const auto outputs = run(session, first, second, rows, columns, start);
  write_pfm(words[4], outputs[0].GetTensorData<float>(), rows, columns, left);
  std::cout << words[4] << ": " << left.height << "x" << left.width << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
