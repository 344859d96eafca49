"""Operations with kernels of their own; training and inference share them."""
