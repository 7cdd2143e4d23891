"""Operations on device tensors: convolutions, pools, and the other layers of a network."""
