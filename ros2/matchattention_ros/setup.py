"""Build description for ament_python."""

from setuptools import setup

NAME = "matchattention_ros"

setup(
    name=NAME,
    version="0.2.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", ["launch/stereo.launch.py"]),
    ],
    install_requires=["setuptools"],  # matchattention itself comes from pip: rosdep does not know it
    zip_safe=True,
    description="Stereo disparity, depth and point clouds with MatchAttention.",
    license="Apache-2.0",
    entry_points={"console_scripts": [f"stereo_node = {NAME}.node:main"]},
)
