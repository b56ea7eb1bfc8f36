# Kernel variants of the op module. src/op/ref/*.c is compiled for float and for double; src/op/cpu/*.c once per
# instruction set, chosen at run time. Each variant gets its own symbol suffix through KERNEL_SUFFIX.
