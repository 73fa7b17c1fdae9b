// Stands in for NVIDIA's driver library: it serves CUDA 12.2.
extern "C" int cuDriverGetVersion(int* version) {
  *version = 12020;
  return 0;
}
