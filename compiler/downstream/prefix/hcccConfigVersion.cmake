# Which hccc that is, for find_package(hccc VERSION).
include("${CMAKE_CURRENT_LIST_DIR}/hcccPackaged.cmake")
if(hccc_packaged)
  include("${hccc_packaged}/hcccConfigVersion.cmake")
else()
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
