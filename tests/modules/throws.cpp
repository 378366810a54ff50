/* throws.cpp: a C++ module whose run function throws, guarded as module.h asks. */
#include <attn/module.h>
#include <cstring>
#include <stdexcept>

namespace
{

attn_status plan(const attn_host *, const attn_problem *, void **state, attn_workspace *workspace,
                 attn_error *)
{
    *state = nullptr;
    *workspace = attn_workspace{};
    return ATTN_OK;
}

/* An even number of heads throws what has a text, an odd one what has none. */
attn_status work(const attn_call *call)
{
    if (call->problem->heads % 2 == 0) throw std::runtime_error("the tile is on fire");
    throw 7;
}

attn_status run(const attn_host *, const void *, const attn_call *call, attn_error *error)
{
    ATTN_GUARD(error, return work(call);)
}

const char *const backends[] = {"FLASH_ATTN", nullptr};

attn_impl make_impl()
{
    attn_impl impl = {};
    impl.size = sizeof impl;
    impl.rank = 500;
    impl.name = "throws_always";
    impl.summary = "a test's implementation";
    impl.platform = "cpu";
    impl.backends = backends;
    impl.features = ~static_cast<uint64_t>(0);
    impl.dtypes = 1u << ATTN_F32;
    impl.head_dim_max = 1024;
    impl.plan = plan;
    impl.run = run;
    return impl;
}

const attn_impl impl = make_impl();
const attn_impl *const impls[] = {&impl, nullptr};
attn_module make_module()
{
    attn_module module = {};
    module.size = sizeof module;
    module.abi_major = ATTN_MODULE_MAJOR;
    module.abi_minor = ATTN_MODULE_MINOR;
    module.name = "throws";
    module.version = "1.0";
    module.license = "Apache-2.0";
    module.impls = impls;
    return module;
}

const attn_module module_header = make_module();

} // namespace

extern "C" ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);
const attn_module *attn_module_v1(void)
{
    return &module_header;
}
