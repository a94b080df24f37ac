# hccc_packaged: where the hccc of this prefix has its configuration; empty if it cannot be asked.
get_filename_component(hccc_asked "${CMAKE_CURRENT_LIST_DIR}/../../../bin/hccc" ABSOLUTE)
execute_process(COMMAND "${hccc_asked}" config --cmakedir RESULT_VARIABLE hccc_failed
  OUTPUT_VARIABLE hccc_packaged ERROR_VARIABLE hccc_said OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT hccc_failed EQUAL 0)
  set(hccc_said "${hccc_said}${hccc_failed}")
  set(hccc_packaged "")
endif()
