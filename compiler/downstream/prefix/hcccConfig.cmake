# find_package(hccc) where a folder `bin` with hccc is on PATH: the configuration of that hccc, which
# it names. The file is installed as <prefix>/share/cmake/hccc/hcccConfig.cmake.
include("${CMAKE_CURRENT_LIST_DIR}/hcccPackaged.cmake")
if(hccc_packaged)
  include("${hccc_packaged}/hcccConfig.cmake")
else()
  set(hccc_FOUND FALSE)
  set(hccc_NOT_FOUND_MESSAGE "${hccc_asked} config --cmakedir fails: ${hccc_said}")
endif()
