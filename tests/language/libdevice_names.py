"""The names of Triton 3.6's ``triton.language.extra.cuda.libdevice``, with the types that each takes and
gives (the public interface of that module), as data."""

from __future__ import annotations

import itertools
import re

_TABLE = """
clz popc ffs                                                    i32->i32 i64->i32
byte_perm                                                       i32,i32,i32->i32
mulhi                                                           i32,i32->i32 u32,u32->u32 i64,i64->i64 u64,u64->u64
mul24 hadd rhadd                                                i32,i32->i32 u32,u32->u32
brev                                                            i32->i32 i64->i64
sad                                                             i32,i32,u32->i32 u32,u32,u32->u32
abs                                                             i32->i32 i64->i64 fp32->fp32 fp64->fp64
{floor,ceil,trunc,rint,nearbyint,round}                         fp32->fp32 fp64->fp64
{sqrt,rsqrt,cbrt,rcbrt,exp,exp2,exp10,expm1}                    fp32->fp32 fp64->fp64
{log,log2,log10,log1p,sin,cos,tan,sinpi,cospi}                  fp32->fp32 fp64->fp64
{asin,acos,atan,sinh,cosh,tanh,asinh,acosh,atanh}               fp32->fp32 fp64->fp64
{j0,j1,y0,y1,cyl_bessel_i0,cyl_bessel_i1}                       fp32->fp32 fp64->fp64
{erf,erfinv,erfc,erfcx,erfcinv,normcdf,normcdfinv}              fp32->fp32 fp64->fp64
{lgamma,tgamma,logb}                                            fp32->fp32 fp64->fp64
{rcp,sqrt}_{rn,rz,rd,ru}                                        fp32->fp32 fp64->fp64
{add,sub,mul,div}_{rn,rz,rd,ru}                                 fp32,fp32->fp32 fp64,fp64->fp64
{copysign,nextafter,atan2,hypot,rhypot,fmod,remainder,pow,fdim} fp32,fp32->fp32 fp64,fp64->fp64
pow ldexp scalbn                                                fp32,i32->fp32 fp64,i32->fp64
jn yn                                                           i32,fp32->fp32 i32,fp64->fp64
fma fma_{rn,rz,rd,ru} {norm3d,rnorm3d}                          fp32,fp32,fp32->fp32 fp64,fp64,fp64->fp64
norm4d rnorm4d                                                  fp32,fp32,fp32,fp32->fp32 fp64,fp64,fp64,fp64->fp64
rcp64h                                                          fp64->fp64
saturatef rsqrt_rn                                              fp32->fp32
fast_{sin,cos,tan,log2,log,log10,exp,exp10}f                    fp32->fp32
fast_dividef fast_powf                                          fp32,fp32->fp32
double2float_{rn,rz,rd,ru}                                      fp64->fp32
double2{int,uint}_{rn,rz,rd,ru}                                 fp64->i32
double2{ll,ull}_{rn,rz,rd,ru}                                   fp64->i64
float2{int,uint}_{rn,rz,rd,ru}                                  fp32->i32
float2{ll,ull}_{rn,rz,rd,ru}                                    fp32->i64
int2float_{rn,rz,rd,ru}                                         i32->fp32
uint2float_{rn,rz,rd,ru}                                        u32->fp32
ll2float_{rn,rz,rd,ru}                                          i64->fp32
ull2float_{rn,rz,rd,ru}                                         u64->fp32
ll2double_{rn,rz,rd,ru}                                         i64->fp64
ull2double_{rn,rz,rd,ru}                                        u64->fp64
int2double_rn                                                   i32->fp64
uint2double_rn                                                  u32->fp64
hiloint2double                                                  i32,i32->fp64
double2hiint double2loint                                       fp64->i32
int_as_float                                                    i32->fp32
uint_as_float                                                   u32->fp32
float_as_int float_as_uint                                      fp32->i32
longlong_as_double                                              i64->fp64
double_as_longlong                                              fp64->i64
llrint llround                                                  fp32->i64 fp64->i64
isnan isinf                                                     fp32->i1 fp64->i1
finitef                                                         fp32->i1
isfinited                                                       fp64->i1
signbit ilogb                                                   fp32->i32 fp64->i32
"""  # noqa: E501

EXTRA = {"fast_tanhf", "fmax", "fmin", "umulhi"}
"""Names that Triton's module does not have, or has under another module."""

Signature = tuple[tuple[str, ...], str]


def _names(pattern: str) -> list[str]:
    """``{a,b}_{c,d}`` as ``a_c a_d b_c b_d``."""
    parts = [part.strip("{}").split(",") for part in re.split(r"(\{[^}]*\})", pattern)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def _read() -> dict[str, list[Signature]]:
    found: dict[str, list[Signature]] = {}
    for line in _TABLE.strip().splitlines():
        words = line.split()
        forms = [word.split("->") for word in words if "->" in word]
        for name in (name for word in words if "->" not in word for name in _names(word)):
            found.setdefault(name, []).extend((tuple(a.split(",")), result) for a, result in forms)
    return found


SIGNATURES = _read()
