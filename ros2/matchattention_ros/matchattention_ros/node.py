"""The node: rectified pairs in; disparity, depth, confidence and points out, each while somebody subscribes."""

from __future__ import annotations

import sys
from array import array
from typing import Any

import message_filters
import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField
from stereo_msgs.msg import DisparityImage

from matchattention import InputError, Predictor
from matchattention_ros import conversions

PARAMETERS = {
    "model": "rt",
    "device": "auto",
    "precision": "auto",
    "min_confidence": 0.5,
    "max_depth": 100.0,  # m
    "slop": 0.01,  # s between the stamps of a pair
    "queue_size": 5,
}


class StereoNode(Node):
    """Matches the newest pair; pairs that come while it works are dropped, so that nothing grows old in a queue."""

    def __init__(self) -> None:
        super().__init__("matchattention")
        for name, default in PARAMETERS.items():
            self.declare_parameter(name, default)
        self._predict = Predictor(self._value("model"), self._value("device"), self._value("precision"), check=False)
        self._disparity = self.create_publisher(DisparityImage, "disparity", 1)
        self._depth = self.create_publisher(Image, "depth", 1)
        self._confidence = self.create_publisher(Image, "confidence", 1)
        self._points = self.create_publisher(PointCloud2, "points2", 1)
        topics = (
            (Image, "left/image_rect"),
            (Image, "right/image_rect"),
            (CameraInfo, "left/camera_info"),
            (CameraInfo, "right/camera_info"),
        )
        filters = [
            # One message a topic: with the usual five of sensors, five old frames would be matched before the newest.
            message_filters.Subscriber(
                self, kind, name, qos_profile=QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
            )
            for kind, name in topics
        ]
        self._pairs = message_filters.ApproximateTimeSynchronizer(
            filters, queue_size=self._value("queue_size"), slop=self._value("slop")
        )
        self._pairs.registerCallback(self.match)

    def match(self, left: Any, right: Any, left_info: Any, right_info: Any) -> None:
        """One synchronised pair."""
        publishers = (self._disparity, self._depth, self._confidence, self._points)
        if not any(publisher.get_subscription_count() for publisher in publishers):
            return
        try:
            image = conversions.image_of(left)
            camera = conversions.camera_of(left_info, right_info)
            conversions.require_own_size(left, left_info)
            result = self._predict(image, conversions.image_of(right))
        except InputError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=5.0)
            return
        known = conversions.known_pixels(result.disparity, result.confidence, camera, self._value("min_confidence"))
        depth = conversions.depth_metres(result.disparity, known, camera)
        if self._disparity.get_subscription_count():
            fields = conversions.disparity_fields(result.disparity, known, camera)
            self._disparity.publish(_disparity_message(left.header, fields))
        if self._depth.get_subscription_count():
            self._depth.publish(_image_message(left.header, depth))
        if self._confidence.get_subscription_count():
            self._confidence.publish(_image_message(left.header, result.confidence))
        if self._points.get_subscription_count():
            cloud = conversions.cloud_bytes(depth, image, camera, self._value("max_depth"))
            self._points.publish(_cloud_message(left.header, cloud))

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value


def _image_message(header: Any, values: np.ndarray) -> Image:
    """32FC1 of (H, W) float32."""
    message = Image()
    message.header = header
    message.height, message.width = values.shape
    message.encoding = "32FC1"
    message.is_bigendian = 0
    message.step = 4 * message.width
    message.data = _bytes(np.ascontiguousarray(values, "<f4"))
    return message


def _disparity_message(header: Any, fields: conversions.DisparityFields) -> DisparityImage:
    message = DisparityImage()
    message.header = header
    message.image = _image_message(header, fields.image)
    message.f, message.t = fields.f, fields.t
    window = message.valid_window
    window.x_offset, window.y_offset, window.width, window.height = fields.valid_window
    message.min_disparity, message.max_disparity = fields.min_disparity, fields.max_disparity
    message.delta_d = fields.delta_d
    return message


def _cloud_message(header: Any, cloud: np.ndarray) -> PointCloud2:
    message = PointCloud2()
    message.header = header
    message.height, message.width = cloud.shape[:2]
    message.fields = [
        PointField(name=name, offset=4 * index, datatype=PointField.FLOAT32, count=1)
        for index, name in enumerate(("x", "y", "z", "rgb"))
    ]
    message.is_bigendian = False
    message.is_dense = False
    message.point_step = conversions.POINT_STEP
    message.row_step = message.point_step * message.width
    message.data = _bytes(cloud)
    return message


def _bytes(values: np.ndarray) -> array:
    """As messages hold them: of anything else they check every byte on its own, for seconds a cloud."""
    return array("B", values.tobytes())


def main() -> None:
    """Run until Ctrl-C or the end of the launch; exit 2 when the model cannot be loaded."""
    rclpy.init()
    try:
        node = StereoNode()
        try:
            rclpy.spin(node)
        finally:
            node.destroy_node()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    finally:
        rclpy.try_shutdown()
