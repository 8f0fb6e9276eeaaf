"""The settings of the stages, how files and flags set them, and the GPU that is there."""
