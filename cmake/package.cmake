# What Debian wants of a package's files before they are packed: run by cpack.
find_program(gzip gzip REQUIRED)
find_program(strip strip REQUIRED)
file(GLOB pages ${CPACK_TEMPORARY_DIRECTORY}/usr/share/man/man1/*.1 ${CPACK_TEMPORARY_DIRECTORY}/usr/share/doc/tern/CHANGELOG.md)
execute_process(COMMAND ${gzip} -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE archives ${CPACK_TEMPORARY_DIRECTORY}/usr/lib/*.a)
execute_process(COMMAND ${strip} --strip-debug --enable-deterministic-archives ${archives} COMMAND_ERROR_IS_FATAL ANY)
