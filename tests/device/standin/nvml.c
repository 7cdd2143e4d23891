// A stand-in of NVIDIA's management library with one device, for tests of the calls that read it.
#include <stdlib.h>
#include <string.h>

static unsigned long long energy = 1000;
static int initialised = 0;
static char device;

int nvmlInit_v2(void) { initialised = 1; return 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (!initialised || strcmp(uuid, "GPU-11111111-2222-3333-4444-555555555555")) return 6;
  *handle = &device;
  return 0;
}

static int wrong(void* handle) { return handle != &device; }

int nvmlDeviceGetClockInfo(void* handle, unsigned kind, unsigned* mhz) {
  if (wrong(handle) || kind != 1) return 2;
  *mhz = 1410;
  return 0;
}

int nvmlDeviceGetTemperature(void* handle, unsigned sensor, unsigned* degrees) {
  if (wrong(handle) || sensor != 0) return 2;
  *degrees = 67;
  return 0;
}

#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void* handle, unsigned long long* reasons) {
#endif
  if (wrong(handle)) return 2;
  *reasons = 0x1 | 0x4 | 0x40;  // idle is no throttling
  return 0;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  if (wrong(handle)) return 2;
  *millijoules = energy += 2500;
  return 0;
}
#endif
