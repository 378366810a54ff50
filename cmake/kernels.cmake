# Only files of an instruction set get its flags. Rows: file suffix, flags. A file src/kernels/NAME_<suffix>.c
# gets the row's flags; all others are baseline code (on aarch64 that includes neon).
set(ATTN_ISA_FLAGS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(ATTN_ISA_FLAGS
    "avx2:-mavx2 -mfma -mf16c"
    "avx512:-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512"
    "avx512_bf16:-mavx512bf16 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512")
endif()

# gcc lays out fake stack frames, which the address sanitizer takes to find uses after return, with 32 bytes of alignment
# and then stores 64-byte vectors there with aligned instructions. The files with vectors do without such frames.
set(attn_kernel_sanitize "")
if(ATTN_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(attn_kernel_sanitize " --param=asan-use-after-return=0")
endif()

function(attn_kernel_flags folder)
  foreach(row ${ATTN_ISA_FLAGS})
    string(REGEX MATCH "^([^:]+):(.*)$" _ "${row}")
    file(GLOB files CONFIGURE_DEPENDS ${folder}/*_${CMAKE_MATCH_1}.c)
    foreach(file ${files})
      set_source_files_properties(${file} PROPERTIES COMPILE_FLAGS "${CMAKE_MATCH_2}${attn_kernel_sanitize}")
    endforeach()
  endforeach()
endfunction()
