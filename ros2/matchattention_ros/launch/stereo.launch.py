"""Start the node in a camera's namespace: `ros2 launch matchattention_ros stereo.launch.py namespace:=stereo`."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

ARGUMENTS = {
    "namespace": ("stereo", "where left/image_rect and right/image_rect are"),
    "model": ("rt", "shipped model or .safetensors file"),
    "device": ("auto", "auto, cpu, cuda, cuda:1"),
    "min_confidence": ("0.5", "pixels below are invalid, in [0, 1]"),
    "max_depth": ("100.0", "m; farther points leave the cloud"),
    "slop": ("0.01", "s between the stamps of a pair"),
}


def generate_launch_description() -> LaunchDescription:
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    parameters = {
        name: ParameterValue(LaunchConfiguration(name), value_type=str if name in ("model", "device") else float)
        for name in ARGUMENTS
        if name != "namespace"
    }
    node = Node(
        package="matchattention_ros",
        executable="stereo_node",
        namespace=LaunchConfiguration("namespace"),
        parameters=[parameters],
        output="screen",
    )
    return LaunchDescription([*declared, node])
