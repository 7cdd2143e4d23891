"""Loading of networks: registered names, `module:callable`, timm names, ONNX files."""

from tessera.inference.networks.loading import InferenceNetwork, build_network, compute_network_info, load_network

__all__ = ["InferenceNetwork", "build_network", "compute_network_info", "load_network"]
