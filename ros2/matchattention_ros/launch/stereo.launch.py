"""Start the node in a camera's namespace: `ros2 launch matchattention_ros stereo.launch.py namespace:=stereo`."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

# What the node's PARAMETERS hold, with a word on each.
ARGUMENTS = {
    "model": ("rt", "shipped model or .safetensors file"),
    "device": ("auto", "auto, cpu, cuda, cuda:1"),
    "precision": ("auto", "auto, fp32, fp16, bf16"),
    "min_confidence": (0.5, "pixels below are invalid, in [0, 1]"),
    "max_depth": (100.0, "m; farther points leave the cloud"),
    "slop": (0.01, "s between the stamps of a pair"),
    "queue_size": (5, "messages a topic that wait for their partners"),
}


def generate_launch_description() -> LaunchDescription:
    where = DeclareLaunchArgument(
        "namespace", default_value="stereo", description="where left/image_rect and right/image_rect are"
    )
    declared = [
        DeclareLaunchArgument(name, default_value=str(default), description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    parameters = {
        name: ParameterValue(LaunchConfiguration(name), value_type=type(default))
        for name, (default, _) in ARGUMENTS.items()
    }
    node = Node(
        package="matchattention_ros",
        executable="stereo_node",
        namespace=LaunchConfiguration("namespace"),
        parameters=[parameters],
        output="screen",
    )
    return LaunchDescription([where, *declared, node])
