"""What users call: convolutions, pools and what else a network is made of, on tensors of a device."""
