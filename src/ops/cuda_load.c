/* cuda_load.c - finding the cuda backend's library and checking that it belongs to this tern. See cuda/plugin.h.
 *
 * The handle is kept for the life of the process: a driver that was loaded once does not like to leave. Loading twice
 * is harmless (the loader counts), so there is nothing to remember between calls.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "ops/cuda/plugin.h"

bool cuda_driver_there(void)
{
  static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/proc/driver/nvidia/version"};
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
    if (access(nodes[i], F_OK) == 0)
      return true;
  return false;
}

/* The folder of the program or the shared libtern that this code is in, with a slash at its end; "": nobody knows. */
static void own_folder(char out[PATH_MAX])
{
  Dl_info info;
  const char *name =
      dladdr((void *)(uintptr_t)&cuda_load, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
  /* Of a program the loader knows only what it was called by. */
  bool shared = name && strncmp(name, "/libtern.so", strlen("/libtern.so")) == 0;
  char *whole = realpath(shared ? info.dli_fname : "/proc/self/exe", NULL), *slash = whole ? strrchr(whole, '/') : NULL;
  size_t length = slash ? (size_t)(slash + 1 - whole) : 0;
  if (length >= PATH_MAX)
    length = 0;
  memcpy(out, whole ? whole : "", length);
  out[length] = '\0';
  free(whole);
}

static void *open_library(tern_error *err)
{
  static const char installed[] = "../" TERN_LIBDIR "/tern/";
  static const char *const places[] = {"", "tern/", "../lib/tern/", "../lib64/tern/", installed};
  char folder[PATH_MAX];
  void *library = NULL;
  own_folder(folder);
  for (size_t i = 0; !library && *folder && i < sizeof places / sizeof *places; i++) {
    buf path = {0};
    buf_addf(&path, "%s%s%s", folder, places[i], CUDA_PLUGIN_FILE);
    if (!path.failed && access(path.data, F_OK) == 0) {
      library = dlopen(path.data, RTLD_NOW | RTLD_LOCAL);
      if (!library)
        err_set(err, TERN_E_UNSUPPORTED, "backend cuda: %s", dlerror());
    }
    buf_free(&path);
    if (library || (err && err->status == TERN_E_UNSUPPORTED))
      return library;
  }
  library = dlopen(CUDA_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    err_set(err, TERN_E_NOT_FOUND,
            "backend cuda: no %s beside the program or in its lib folder: this build has no GPU backend",
            CUDA_PLUGIN_FILE);
  return library;
}

tern_status cuda_load(const cuda_plugin **out, tern_error *err)
{
  tern_error own = {0}; /* open_library reads it back */
  void *library = open_library(&own);
  if (!library)
    return err_set(err, own.status, "%s", own.text);
  void *symbol = dlsym(library, CUDA_PLUGIN_ENTRY);
  cuda_plugin_fn *entry;
  memcpy(&entry, &symbol, sizeof entry);
  const cuda_plugin *plugin = symbol ? entry() : NULL;
  if (!plugin || strcmp(plugin->version, TERN_VERSION) != 0 || strcmp(plugin->build, TERN_CUDA_BUILD) != 0)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "backend cuda: %s is of another build (%s, this is %s): use the one that came with this tern",
                   CUDA_PLUGIN_FILE, plugin ? plugin->version : "no tern's", TERN_VERSION);
  *out = plugin;
  return TERN_OK;
}
