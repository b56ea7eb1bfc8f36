// Functions that are linked, since tables and branches name them, but that no plan calls: kernels on an emulated GPU, other
// libraries, ranks that meet, texts that are read. A command that calls one nevertheless ends with this sentence.
const ABSENT = `
__sched_cpucount chunk_bytes chunk_forget chunk_free chunk_is_partial chunk_need chunk_next dnnl_engine_create
dnnl_engine_destroy dnnl_matmul_desc_init dnnl_memory_create dnnl_memory_desc_get_size
dnnl_memory_desc_init_by_strides dnnl_memory_destroy dnnl_memory_set_data_handle dnnl_post_ops_append_sum
dnnl_post_ops_create dnnl_post_ops_destroy dnnl_primitive_attr_create dnnl_primitive_attr_destroy
dnnl_primitive_attr_set_post_ops dnnl_primitive_attr_set_scratchpad_mode dnnl_primitive_create
dnnl_primitive_desc_create dnnl_primitive_desc_destroy dnnl_primitive_desc_query_md dnnl_primitive_destroy
dnnl_primitive_execute dnnl_stream_create dnnl_stream_destroy dnnl_stream_wait emu_atomic_add_u64 emu_ballot
emu_context_close emu_context_fault emu_context_free emu_context_open emu_copies_commit emu_copies_wait
emu_copy16_async emu_driver_fill emu_here emu_load16 emu_load8 emu_lt_fill emu_matrix_load4 emu_multiply_add emu_nccl_fill emu_raise_flag
emu_refuse emu_shared emu_shuffle emu_store16 emu_store8 emu_stream_scope emu_stream_scope_end emu_sync_block
emu_sync_warp eval_plan eval_task_close eval_task_open input_list_find input_list_free
joined_open lifeline_free mpi_is_offered mpi_open parquet_close parquet_open parquet_rows_close
parquet_rows_next parquet_rows_next_json parquet_rows_open pthread_setaffinity_np reader_bytes_done reader_bytes_total reader_close reader_document_limit
reader_done reader_file reader_fingerprint reader_finish reader_get_report reader_is_text_only reader_n_files
reader_next_chunk reader_open reader_report_charset reader_report_replaced reader_report_sample reader_seek sched_setaffinity stream_close stream_open
stream_read utf8proc_category utf8proc_decompose_char utf8proc_get_property utf8proc_normalize_utf32
utf8proc_tolower utf8proc_totitle utf8proc_toupper
`;

const functions = {
  // How many processors there are is not asked of a browser: code that needs it takes one.
  sched_getaffinity: function () {
    return -1;
  },
};
for (const name of ABSENT.trim().split(/\s+/))
  functions[name] = function () {
    abort('this part of the program is not in the page');
  };
mergeInto(LibraryManager.library, functions);
