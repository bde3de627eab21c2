"""Three tiny kernels that the driver itself compiles: a sign of life, a pause, and nothing at all."""

from __future__ import annotations

__all__ = ["CANARY", "EMPTY", "PTX", "SPIN"]

CANARY = "sweeper_canary"
SPIN = "sweeper_spin"
EMPTY = "sweeper_empty"

# sweeper_canary(out, seed): out[i] = seed + i for every thread i of the grid.
# sweeper_spin(cycles): returns once the SM's clock has advanced by `cycles`; touches no memory.
PTX = b"""\
.version 6.3
.target sm_70
.address_size 64

.visible .entry sweeper_canary(.param .u64 out, .param .u32 seed)
{
    .reg .u32 %i<4>;
    .reg .u64 %a<2>;
    ld.param.u64 %a0, [out];
    ld.param.u32 %i0, [seed];
    cvta.to.global.u64 %a0, %a0;
    mov.u32 %i1, %ctaid.x;
    mov.u32 %i2, %ntid.x;
    mov.u32 %i3, %tid.x;
    mad.lo.u32 %i1, %i1, %i2, %i3;
    mul.wide.u32 %a1, %i1, 4;
    add.u64 %a0, %a0, %a1;
    add.u32 %i0, %i0, %i1;
    st.global.u32 [%a0], %i0;
    ret;
}

.visible .entry sweeper_spin(.param .u64 cycles)
{
    .reg .u64 %c<4>;
    .reg .pred %more;
    ld.param.u64 %c0, [cycles];
    mov.u64 %c1, %clock64;
again:
    mov.u64 %c2, %clock64;
    sub.u64 %c3, %c2, %c1;
    setp.lt.u64 %more, %c3, %c0;
    @%more bra again;
    ret;
}

.visible .entry sweeper_empty()
{
    ret;
}
"""
