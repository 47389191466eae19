"""Values of threads on their way to other threads: as 32- and 64-bit words, by shuffles and through shared
memory."""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.indices import group_number
from ptxforge.codegen_ptx.ptx.access import vector_load, vector_store
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import Pointer, whole
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.warps import BARRIERS_APART

FULL_WARP = -1


# -- words -----------------------------------------------------------------------------------------------


def to_word(b: Builder, x, element: T.Type) -> Register:
    """An entry in a register of 32 bits, or 64 for a 64-bit element."""
    if isinstance(x, Pointer):
        return whole(b, x)
    kind = register_class(element)
    if kind == "p":
        return b.register(x, "r") if isinstance(x, int) else b.pure("selp.b32 %s, 1, 0, %s;", "r", x)
    x = b.register(x, kind)
    return b.pure("cvt.u32.u16 %s, %s;", "r", x) if kind == "h" else x


def word_class(element: T.Type) -> str:
    """The register class of :func:`to_word`'s result."""
    kind = register_class(element)
    return kind if kind in "rfqd" else "r"


def from_word(b: Builder, word: Register, element: T.Type) -> Register:
    """The entry in a word."""
    kind = register_class(element)
    if kind == "p":
        return b.pure("setp.ne.b32 %s, %s, 0;", "p", word)
    return b.pure("cvt.u16.u32 %s, %s;", "h", word) if kind == "h" else word


# -- shuffles --------------------------------------------------------------------------------------------


def shuffle(b: Builder, mode: str, word: Register, lane) -> Register:
    """``shfl.sync`` of a 32- or 64-bit word in all lanes; ``mode`` is ``bfly``, ``idx``, ``up`` or ``down``.
    Lanes that would read beyond the warp keep their own."""
    template = f"shfl.sync.{mode}.b32 %s, %s, %s, {0 if mode == 'up' else 31}, {FULL_WARP};"
    kind = word.kind
    if kind not in "qd":
        return b.pure(template, kind, word, lane)
    low, high = b.pure_many("mov.b64 {%s, %s}, %s;", "rr", word)
    low, high = b.pure(template, "r", low, lane), b.pure(template, "r", high, lane)
    return b.pure("mov.b64 %s, {%s, %s};", kind, low, high)


def shuffle_entries(b: Builder, mode: str, entries: list, element: T.Type, lane) -> list:
    """The entries of another lane, as :func:`shuffle`."""
    return [from_word(b, shuffle(b, mode, to_word(b, x, element), lane), element) for x in entries]


def butterfly(b: Builder, entries: list, element: T.Type, mask: int) -> list:
    """The entries of the lane whose number differs in the bits of ``mask``."""
    return shuffle_entries(b, "bfly", entries, element, mask)


# -- shared memory ---------------------------------------------------------------------------------------


def shared_base(b: Builder) -> Register:
    """The address of the kernel's dynamic shared memory, in the shared window."""
    with b.at_entry():
        return b.pure("mov.u32 %s, smem;", "r")


def cta_rank(b: Builder) -> Register:
    """The CTA's rank in its cluster."""
    with b.at_entry():
        return b.pure("mov.u32 %s, %%cluster_ctarank;", "r")


def shared_base_at(b: Builder, rank) -> Register:
    """The address of the dynamic shared memory of another CTA, in the window of the cluster."""
    with b.at_entry():
        return b.pure("mapa.shared::cluster.u32 %s, %s, %s;", "r", shared_base(b), rank)


def shared_bases(b: Builder, ctas: int, ranks: int) -> list[Register]:
    """The same of all CTAs, of ``ctas``, whose ranks differ from the own one in the bits ``ranks`` alone, in
    the order of their ranks."""
    with b.at_entry():
        own = b.pure("and.b32 %s, %s, %s;", "r", cta_rank(b), ctas - 1 & ~ranks)
        members = [bits for bits in range(ranks + 1) if bits & ranks == bits]
        return [shared_base_at(b, b.pure("or.b32 %s, %s, %s;", "r", own, bits)) for bits in members]


def shared_address(b: Builder, thread, offset: int, base: Register | None = None):
    """The affine address ``smem + thread + offset``, or from another ``base``; ``thread`` is a value of
    :func:`thread_xor`."""
    base = shared_base(b) if base is None else base
    if isinstance(thread, int):
        return b.add(base, thread + offset)
    with b.at_entry():
        base = b.add(base, thread)
    return b.add(base, offset)


def store_words(b: Builder, address, words: list, predicate=None) -> None:
    """A vector store of 32- or 64-bit words to shared memory."""
    vector_store(b, "st.shared", address, words, "b64" if words[0].kind in "qd" else "b32", guard=predicate)


def load_words(b: Builder, address, count: int, kind: str, head: str = "ld.shared") -> list[Register]:
    """A vector load of words of class ``kind`` from shared memory."""
    words = b.several(kind * count)
    vector_load(b, head, words, "b64" if kind in "qd" else "b32", address)
    return words


def barrier(b: Builder) -> None:
    """All threads of the group meet."""
    group = b.group
    if group.groups > 1:
        with b.at_entry():
            number = b.pure("mad.lo.u32 %s, %s, %s, %s;", "r", group_number(b), BARRIERS_APART, group.barrier)
        b.effect(f"bar.sync %s, {group.threads};", number)
        return
    b.effect(f"bar.sync {group.barrier}, {group.threads};" if group.barrier else "bar.sync 0;")


def cluster_barrier(b: Builder) -> None:
    """All threads of all CTAs of the cluster meet."""
    b.effect("barrier.cluster.arrive.release.aligned;")
    b.effect("barrier.cluster.wait.acquire.aligned;")
