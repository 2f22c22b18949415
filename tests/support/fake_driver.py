"""A libcuda.so.1 that answers what a test wants, compiled once in a test run by the C compiler in the ziglang wheel.

What it answers stands in an environment variable: `devices=2 name=NVIDIA_L4 major=8 minor=9 cuInit=0 free=20000`.
CUDA_VISIBLE_DEVICES counts as it does for the real one. It has the functions that the suite asks, with the types of the
CUDA driver API, and no others: TensorFlow finds none of those that it needs.
"""

import os
from pathlib import Path

from support.c_compiler import compile_shared
from support.session import run_once, session_folder

VARIABLE = "TFIMG_FAKE_DRIVER"
SOURCE = r"""
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number after NAME= in the variable. */
static long setting(const char *name, long otherwise) {
  const char *text = getenv("TFIMG_FAKE_DRIVER");
  size_t length = strlen(name);
  while (text && *text) {
    if (!strncmp(text, name, length) && text[length] == '=') return strtol(text + length + 1, NULL, 10);
    text = strchr(text, ' ');
    if (text) text++;
  }
  return otherwise;
}

/* Indices before the first that is not a device's, as the CUDA programming guide says. */
static int visible(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  int devices = (int)setting("devices", 1), count = 0;
  if (!text) return devices;
  while (*text) {
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || number < 0 || number >= devices) break;
    count++;
    text = *end == ',' ? end + 1 : end;
  }
  return count;
}

static int initialised, contexts, pushed;

int cuDriverGetVersion(int *version) { *version = (int)setting("cuda", 12040); return 0; }

int cuInit(unsigned flags) {
  puts("noise on standard output");
  fflush(stdout);
  if (setting("crash", 0)) raise(SIGSEGV);
  if (setting("hang", 0)) sleep(setting("hang", 0));
  if (setting("cuInit", 0)) return (int)setting("cuInit", 0);
  if (!visible()) return 100;
  initialised = 1;
  return 0;
}

#define ANSWER(function) \
  if (setting(#function, 0)) return (int)setting(#function, 0); \
  if (!initialised) return 3

int cuDeviceGetCount(int *count) { ANSWER(cuDeviceGetCount); *count = visible(); return 0; }

int cuDeviceGet(int *device, int ordinal) {
  ANSWER(cuDeviceGet);
  if (ordinal < 0 || ordinal >= visible()) return 101;
  *device = 40 + ordinal;  /* a handle, no index */
  return 0;
}

static int wrong(int device) { return device < 40 || device >= 40 + visible(); }

int cuDeviceGetName(char *name, int length, int device) {
  const char *text = getenv("TFIMG_FAKE_DRIVER"), *found = text ? strstr(text, "name=") : NULL;
  ANSWER(cuDeviceGetName);
  if (wrong(device)) return 101;
  snprintf(name, (size_t)length, "%s", found ? found + 5 : "NVIDIA_H200");
  name[strcspn(name, " ")] = 0;
  for (char *one = name; *one; one++) if (*one == '_') *one = ' ';
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  ANSWER(cuDeviceGetAttribute);
  if (wrong(device)) return 101;
  *value = (int)(attribute == 75 ? setting("major", 9) : attribute == 76 ? setting("minor", 0) : -1);
  return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  ANSWER(cuDeviceTotalMem_v2);
  if (wrong(device)) return 101;
  *bytes = (size_t)setting("total", 143771) << 20;
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  ANSWER(cuDevicePrimaryCtxRetain);
  if (wrong(device)) return 101;
  contexts++;
  *context = &contexts;
  return 0;
}

/* Says what was not given back, where a test can read it. */
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (wrong(device)) return 101;
  contexts--;
  fprintf(stderr, "contexts %d pushed %d\n", contexts, pushed);
  return 0;
}

int cuCtxPushCurrent_v2(void *context) {
  ANSWER(cuCtxPushCurrent_v2);
  if (context != &contexts) return 201;
  pushed++;
  return 0;
}

int cuCtxPopCurrent_v2(void **context) { ANSWER(cuCtxPopCurrent_v2); pushed--; *context = &contexts; return 0; }

int cuMemGetInfo_v2(size_t *free, size_t *total) {
  ANSWER(cuMemGetInfo_v2);
  if (!pushed) return 201;
  *free = (size_t)setting("free", 140000) << 20;
  *total = (size_t)setting("total", 143771) << 20;
  return 0;
}
"""


def fake_driver() -> Path:
    """Compile the library, once in a test run, and return the folder for LD_LIBRARY_PATH."""
    return Path(run_once("fake_driver", _compile))


def fake_environment(answers: str, **variables: str) -> dict[str, str]:
    """Return the environment of a process that finds the library, with these answers."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
    }
    return {**kept, "LD_LIBRARY_PATH": str(fake_driver()), VARIABLE: answers, **variables}


def _compile() -> str:
    folder = session_folder() / "fake_driver"
    folder.mkdir()
    compile_shared(SOURCE, folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    return str(folder)
