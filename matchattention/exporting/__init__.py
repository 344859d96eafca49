"""A trained network as a file for other runtimes: ONNX, OpenVINO, torch.export and AOTInductor."""
