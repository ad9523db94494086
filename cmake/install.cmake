# What `make install` puts where, and the Debian package that `make package` makes of it.
#
#   bin/tern                            the program
#   lib/libtern.so, libtern.a           the library; include/tern.h, pkg-config's file and CMake's beside it
#   lib/tern/libtern-cuda.so            the backend for NVIDIA GPUs, where it was built
#   share/man/man1, completions         written by tern itself, from its tables of verbs and flags
#   share/doc/tern                      licence, changelog, README, and the list of all this for `make uninstall`
include(CMakePackageConfigHelpers)

install(TARGETS tern)
install(TARGETS tern_shared EXPORT tern-targets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tern_static)
if(TARGET tern_cuda)
  install(TARGETS tern_cuda DESTINATION ${CMAKE_INSTALL_LIBDIR}/tern)
endif()
install(FILES include/tern.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}) # README's links lead there

# For programs that use the library. The .pc file finds itself, so that a prefix chosen at install time holds.
file(RELATIVE_PATH TERN_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tern.pc.in tern.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(TERN_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tern)
install(EXPORT tern-targets NAMESPACE tern:: FILE tern-config.cmake DESTINATION ${TERN_CMAKE_DIR})
write_basic_package_version_file(tern-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tern-config-version.cmake DESTINATION ${TERN_CMAKE_DIR})

# A program for another processor cannot tell of itself here, and an instrumented one is not installed.
if(NOT CMAKE_CROSSCOMPILING AND NOT TERN_SANITIZE)
  set(described ${CMAKE_BINARY_DIR}/described)
  add_custom_command(OUTPUT ${described}/done DEPENDS tern cmake/described.cmake
    COMMAND ${CMAKE_COMMAND} -DTERN=$<TARGET_FILE:tern> -DOUT=${described} -P ${CMAKE_SOURCE_DIR}/cmake/described.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${described}/done)
  add_custom_target(described ALL DEPENDS ${described}/done)
  install(DIRECTORY ${described}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${described}/completions/bash RENAME tern DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  # Debian's zsh looks elsewhere for what packages bring.
  install(CODE "
    set(folder site-functions)
    if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
      set(folder vendor-completions)
    endif()
    file(INSTALL ${described}/completions/zsh RENAME _tern DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\")")
  install(FILES ${described}/completions/fish RENAME tern.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# Last: what has to come after all files.
configure_file(cmake/installed.cmake.in installed.cmake @ONLY)
install(SCRIPT ${CMAKE_BINARY_DIR}/installed.cmake)

# One package with everything: the GPU backend is loaded only where there is a driver. What it depends on is read off
# the binaries (dpkg-shlibdeps).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tern)
# Who answers for the package: whoever builds it for others, named as Debian's own tools have it.
set(TERN_MAINTAINER "" CACHE STRING "the package's maintainer, \"NAME <ADDRESS>\"; empty: DEBFULLNAME and DEBEMAIL")
set(maintainer "${TERN_MAINTAINER}")
if(NOT maintainer AND NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
  string(STRIP "${maintainer}" maintainer)
elseif(NOT maintainer)
  set(maintainer "whoever built this package <root@localhost>")
endif()
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${maintainer}")
set(CPACK_PACKAGE_VENDOR "tern")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs MLX-format language models with the numbers of mlx-lm")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "A command line, an HTTP server and a C library for language models in MLX format, on CPUs
 and NVIDIA GPUs. Logits are bit-identical to those of mlx-lm.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates) # for tern pull
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package.cmake)
include(CPack)
