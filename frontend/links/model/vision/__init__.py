"""Networks for images: VGG, GoogLeNet, ResNet."""
