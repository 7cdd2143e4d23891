"""The networks that are run, and where they come from: registered names, one's own modules, timm, ONNX files."""

from tessera.inference.networks.loading import Network, build_network, load_network, network_info

__all__ = ["Network", "build_network", "load_network", "network_info"]
