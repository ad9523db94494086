/* break_device.cu - for test_faults.c: an illegal access, after which no call of this process's context succeeds. */
static __global__ void strike(int *nowhere)
{
  *nowhere = 1;
}

extern "C" void break_device(void)
{
  cudaSetDevice(0);
  strike<<<1, 1>>>((int *)16);
  cudaDeviceSynchronize();
}
