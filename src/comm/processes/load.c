/* Finding and loading the module of the MPI whose launcher started this process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/processes/internal.h"

enum { PATH_BYTES = 4096 };

static const char here_mark = 0; /* an address of this library */

/* The folder of a file, with its final '/'. */
static bool folder_of(char *path) {
  char *slash = strrchr(path, '/');
  if (!slash) return false;
  slash[1] = 0;
  return true;
}

/* The folder of the file that this code is in: the shared library, or the program. */
static bool library_folder(char *path) {
  Dl_info here;
  if (dladdr((const void *)&here_mark, &here) == 0 || !here.dli_fname) return false;
  int n = snprintf(path, PATH_BYTES, "%s", here.dli_fname);
  return n < PATH_BYTES && folder_of(path);
}

static bool program_folder(char *path) {
  ssize_t n = readlink("/proc/self/exe", path, PATH_BYTES - 1);
  if (n <= 0) return false;
  path[n] = 0;
  return folder_of(path);
}

static bool find_near(const char *folder, const char *flavour, char *path) {
  static const char *const places[] = {"", "weir/", "../", "../lib/weir/"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    int n = snprintf(path, PATH_BYTES, "%s%sweir-mpi-%s.so", folder, places[i], flavour);
    if (n < PATH_BYTES && access(path, R_OK) == 0) return true;
  }
  return false;
}

/* Looks beside the library or the program, and where they are installed. */
static bool find_module(const char *flavour, char *path) {
  char folder[PATH_BYTES];
  if (library_folder(folder) && find_near(folder, flavour, path)) return true;
  return program_folder(folder) && find_near(folder, flavour, path);
}

/* Is there such a command on the PATH? */
static bool on_path(const char *command) {
  const char *path = getenv("PATH");
  for (const char *end; path && *path; path = *end ? end + 1 : end) {
    char file[PATH_BYTES];
    end = strchr(path, ':') ? strchr(path, ':') : path + strlen(path);
    int n = snprintf(file, sizeof file, "%.*s/%s", (int)(end - path), path, command);
    if (n < PATH_BYTES && access(file, X_OK) == 0) return true;
  }
  return false;
}

static void examine_flavour(const char *name, const char *install, rt_say_fn *say, void *context) {
  char path[PATH_BYTES], to_do[64];
  bool module = find_module(name, path);
  say(context, name, module ? path : "this weir was built without it");
  (void)snprintf(to_do, sizeof to_do, "%s to do", name);
  if (!module) say(context, to_do, install);
}

void mpi_examine(rt_say_fn *say, void *context) {
  examine_flavour("openmpi", "sudo apt install openmpi-bin libopenmpi-dev, then build Weir again",
                  say, context);
  examine_flavour("mpich", "sudo apt install mpich libmpich-dev, then build Weir again", say,
                  context);
  say(context, "launcher", on_path("mpirun") ? "mpirun is there" : "there is no mpirun");
  if (!on_path("mpirun")) say(context, "launcher to do", "sudo apt install openmpi-bin");
}

/* Loads with RTLD_GLOBAL: an MPI loads parts of itself that look for its symbols globally. */
static status load(const char *path, const mpi_transport **result) {
  void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!module) return fail(STATUS_UNAVAILABLE, "mpi: %s", dlerror());
  const mpi_transport *t = dlsym(module, MPI_TRANSPORT_SYMBOL);
  if (!t || t->size_bytes != sizeof *t)
    return fail(STATUS_UNAVAILABLE, "mpi: %s is not a module of this version of Weir", path);
  *result = t;
  return STATUS_OK;
}

static bool given_module(const char **path) {
  *path = getenv("WEIR_MPI_MODULE");
  return *path && **path;
}

static status load_flavour(const char *what, mpi_flavour wanted, const mpi_transport **result) {
  const char *flavour = mpi_flavour_name(wanted), *given;
  char path[PATH_BYTES];
  if (given_module(&given)) return load(given, result);
  if (find_module(flavour, path)) return load(path, result);
  return fail(STATUS_UNAVAILABLE,
              "mpi: %s is that of %s, but weir-mpi-%s.so is neither beside the library nor beside "
              "the program: it was built without it, or name it in WEIR_MPI_MODULE, or use another "
              "mpirun",
              what, flavour, flavour);
}

status mpi_load(const mpi_transport **result) {
  const char *given;
  mpi_launch launch;
  if (given_module(&given)) return load(given, result);
  if (!mpi_launch_find(&launch))
    return fail(STATUS_UNAVAILABLE, "mpi: this process was not started by an MPI launcher "
                                    "(mpirun -n 2 ...)");
  return load_flavour("the launcher", launch.flavour, result);
}

/* Tells which MPI is loaded by a symbol that only this one has. */
static bool present_flavour(mpi_flavour *flavour) {
  mpi_launch launch;
  bool open = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != NULL;
  if (!open && !dlsym(RTLD_DEFAULT, "MPIR_Process")) {
    if (!mpi_launch_find(&launch)) return false;
    *flavour = launch.flavour;
    return true;
  }
  *flavour = open ? MPI_FLAVOUR_OPENMPI : MPI_FLAVOUR_MPICH;
  return true;
}

status mpi_load_present(const mpi_transport **result) {
  mpi_flavour flavour = MPI_FLAVOUR_OPENMPI;
  const char *given;
  if (!present_flavour(&flavour) && !given_module(&given))
    return fail(STATUS_UNAVAILABLE,
                "mpi: the program has loaded neither OpenMPI nor MPICH, and no launcher of theirs "
                "started it");
  return load_flavour("the MPI of this process", flavour, result);
}
