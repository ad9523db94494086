# A toolchain file: Debian's cross compiler, libraries for arm64 in TERN_SYSROOT, programs run by qemu. scripts/aarch64.sh
# prepares all of it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TERN_SYSROOT)
set(libraries ${TERN_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${TERN_SYSROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TERN_SYSROOT})
set(CMAKE_C_FLAGS_INIT "-isystem ${TERN_SYSROOT}/usr/include")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}")

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${libraries})
