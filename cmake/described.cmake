# What tern says of itself, as files: run by the build, once tern is linked.
#
#   cmake -DTERN=PROGRAM -DOUT=FOLDER -P described.cmake      FOLDER/man/tern*.1 and FOLDER/completions/{bash,zsh,fish}
function(write file)
  execute_process(COMMAND ${TERN} ${ARGN} OUTPUT_FILE ${OUT}/${file} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${TERN} ${ARGN}: ${failed}")
  endif()
endfunction()

file(MAKE_DIRECTORY ${OUT}/man ${OUT}/completions)
write(man/tern.1 help --man)
file(STRINGS ${OUT}/man/tern.1 verbs REGEX "^.fBtern.-[a-z]+.fR.1.") # SEE ALSO names them all
foreach(verb ${verbs})
  string(REGEX REPLACE ".*-([a-z]+).*" "\\1" verb "${verb}")
  write(man/tern-${verb}.1 help ${verb} --man)
endforeach()
foreach(shell bash zsh fish)
  write(completions/${shell} completions ${shell})
endforeach()
