"""A trained network as a file for other runtimes: ONNX, OpenVINO, torch.export and AOTInductor.

Not called `export`, because `matchattention.export` is the function.
"""
