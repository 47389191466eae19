"""Numbers of the machines, and the thresholds that follow from them: every constant that says what pays,
once, with its unit. (How far an analysis looks before it gives up stands where it looks.)

What a target *can* do is in :mod:`~ptxforge.support.target`; here is how much, how fast and from where on it
pays. Facts come from the CUDA C++ Programming Guide ("Compute Capabilities") and the PTX ISA; the rest was
chosen by experiment on sm_80 and sm_90 (``docs/performance.md`` tells of them) and is used for all targets.
"""

from __future__ import annotations

# -- threads and registers ---------------------------------------------------------------------------------

MAX_GRID = (2**31 - 1, 65535, 65535)
"""Blocks of threads along each axis of a grid at most."""
WARP_SIZE = 32
"""Threads of a warp."""
MAX_WARPS = 32
"""Warps of a block at most, on every GPU: 1,024 threads."""
WARPS_PER_MULTIPROCESSOR = 64
"""Warps of all blocks together at most: 2,048 threads."""
MOST_MULTIPROCESSORS = 144
"""Multiprocessors of a GPU of sm_90 at most, each with its share of the threads: a whole GH100 (an H100 or
H200 has 132)."""
REGISTERS_PER_MULTIPROCESSOR = 1 << 16
"""32-bit registers, for the threads of all blocks together."""
REGISTER_UNIT = 256
"""32-bit registers in which a warp gets its own."""
MOST_REGISTERS = 255
"""32-bit registers that a thread can have."""
REGISTERS_BESIDE_FLIGHTS = 24
"""32-bit registers of a thread for all but the accumulators and left operands of products under way."""
BLOCKS_THAT_HIDE_A_WAIT = 2
"""How many blocks of threads on a multiprocessor suffice for one to multiply while another waits for its
product."""
PARTS_THROUGH_REGISTERS = 2
"""Parts, one after the other along k, of a product whose left operand passes through registers in a loop: one
multiplies while the registers of the other are filled. More would take no fewer registers, as all are live in
the end, and each has a wait."""
TENSOR_REGISTERS = 180
"""32-bit registers of a thread that tensors can take in a loop of products: of 255, the rest is for
addresses, indices and fragments on their way."""
TENSOR_REGISTERS_BESIDE_POINTERS = 150
"""32-bit registers of a thread that tensors take in a loop of products at most when pointers of the loop get
registers of their own."""
REGISTERS_BESIDE_LOADS = 24
"""32-bit registers of a thread for all but what a loop carries and loads."""
ITERATIONS_SIDE_BY_SIDE = 4
"""Iterations of a loop of unknown length that the assembler writes out side by side, with all their loads."""
REGISTERS_OF_NARROW_LOADS = 4
"""32-bit registers of a thread that loads may take which no copy can do and which run an iteration ahead."""
REGISTERS_OF_EARLY_READS = 32
"""32-bit registers of a thread that operands read ahead of their product may take."""
SETTABLE_REGISTERS = (24, 240)
"""32-bit registers that ``setmaxnreg`` can give a thread: from, to, in steps of 8."""
WARPS_SET_TOGETHER = 4
"""Warps of a warpgroup, 128 threads, which execute ``setmaxnreg`` together."""
WARPS_THAT_LEND = (4, 16)
"""Warps of a block that get others unasked, for copies: four get one more, 32 threads, sixteen four more."""
WARPS_THAT_LEND_ALONE = (8,)
"""Warps of a block that get four more unasked, 128 threads, if it is the only block of its multiprocessor.
Two blocks of eight warps fill each other's pauses."""
WARPS_THAT_TAKE_TURNS = (4,)
"""Warps of a block, the only one of its multiprocessor, that get as many others unasked, 128 threads, to take
the tiles of a persistent product in turns."""
GROUPS_THAT_TAKE_TURNS = 2
"""Groups of so many threads: one stores its tile while the other one multiplies."""
WORDS_FOR_TWO_BLOCKS = ((32, 64), (256, 1 << 30))
"""32-bit words of tensors in a thread for which the assembler is told to leave registers for two blocks a
multiprocessor: from the first number of a pair to the second, both included."""

# -- arithmetic --------------------------------------------------------------------------------------------

TENSOR_OPERATIONS = {80: 2048, 86: 1024, 89: 1024, 90: 4096}
"""Operations on f16 (a multiply-add is two) of a multiprocessor's tensor cores in a cycle, dense, by compute
capability (NVIDIA's white papers): on elements of half the size twice as many, of twice the size half."""
FLOAT_OPERATIONS = {80: 128, 86: 256, 89: 256, 90: 256}
"""Operations on f32 of a multiprocessor in a cycle, outside of tensor cores."""

# -- global memory -----------------------------------------------------------------------------------------

VECTOR_BYTES = 16
"""Bytes of the widest access of one thread that every target has, to global and to shared memory."""
SECTOR_BYTES = 32
"""Bytes of the pieces in which global memory is moved."""
LINE_BYTES = 128
"""Bytes of a line of the caches; what is written of it at once is written in one piece."""
BULK_STORE_BYTES = 512
"""Bytes of a tile from which on TMA stores it through a descriptor: what a warp stores with one instruction
is not worth two barriers."""
THREADS_COPY_BOXES_FROM = 16
"""Bytes that a thread copies at once from which on threads copy what loads through descriptors bring in loops
without products that store nothing by TMA. Else TMA copies the tile, and threads read it in shared memory."""
ASYNC_COPY_BYTES = 4
"""Bytes of the smallest asynchronous copy of one thread; others are of 8 and 16."""
GUARDED_VECTORS = 32
"""Vectors of one access that a thread may test when the kernel runs: each has code of its own for single
elements."""

# -- shared memory -----------------------------------------------------------------------------------------

BANK_BYTES = 4
"""Bytes of a bank of shared memory."""
BANKS = 32
"""Banks of shared memory: each delivers its bytes once in a step."""
SCRATCH_ALIGNMENT = 16
"""Bytes to which scratch memory is aligned: the widest access."""
BUFFER_ALIGNMENT = 128
"""Bytes to which a tile in shared memory is aligned: one row of all banks."""
SMALL_SCRATCH = 512
"""Bytes up to which one scratch area counts as small and gets a place of its own."""
SHARED_UNIT = 128
"""Bytes of shared memory in which a block gets its own."""
SYSTEM_SHARED_BYTES = 1024
"""Bytes of shared memory that each block takes for the system, from sm_80 on."""
ALL_SMALL_SCRATCH = 2048
"""Bytes that all small scratch areas may take together."""
CONVERSION_SCRATCH = 48 << 10
"""Bytes below which a conversion stays where its layouts let it pass in parts: what a block has without
asking."""

# -- costs, in issue slots of a warp: one instruction of the arithmetic units, half a cycle ------------------

EXPENSIVE_OPERATION = 8.0
"""An operation that takes many instructions: a quotient, an exponential."""
SHUFFLE = 2.0
"""An instruction that shuffles."""
SHUFFLE_LATENCY = 12.0
"""Latency of a conversion by shuffles."""
WAVEFRONT = 2.0
"""A step of shared memory: 128 bytes."""
SHARED_ROUND_TRIP = 60.0
"""A barrier of the block, and the latency of what passes through shared memory."""
WARP_ROUND_TRIP = 42.0
"""A barrier of the warp, and that latency."""
REGISTERS_RENAMED = 1.0
"""A conversion inside each thread: no instruction, but registers that have to wait for each other."""
RENAMING = 0.5
"""A conversion between two encodings of one layout: no instruction, but a line less to read when it goes."""
LOOP_WEIGHT = 10.0
"""How often a loop's body is taken to run."""
ACCESS_ISSUE = 4.0
"""An instruction that accesses memory."""
SECTOR = 1.5
"""A sector of a global access: the memory system delivers about two thirds of one per cycle and
multiprocessor."""
REPEATED_LOAD = 4.0
"""How much dearer than by its instructions a load is that repeats another: its data come from the L1 cache,
but registers and requests are needed twice."""

# -- what runs ahead, and between which instructions ---------------------------------------------------------

MULTIPLY_ADDS_PER_SLICE = 64
"""Multiply-adds of a thread on FMA units behind which the reads of the next slice can hide."""
FRAGMENT_LEAD = 64
"""Instructions between the read of a fragment and the ``mma`` that uses it."""
PRODUCTS_PER_COPY_EVEN = 10
"""Instructions of tensor cores for each asynchronous copy, at least, when copies are dealt out evenly."""
PRODUCTS_PER_COPY_EARLY = 6
"""Instructions of tensor cores for each asynchronous copy when the first products take most copies."""
SHORT_CHAIN = 4
"""Iterations of a loop of two products up to which these do not run side by side: the pipeline would hardly
be full before it ends, and needs instructions for its beginning and its end."""
SUMS_SIDE_BY_SIDE = 4
"""Sums of products that run side by side in a thread: as many as hide the latency of an ``fma``, 4 cycles."""
SELECTIONS_WORTH_A_LOOP = 16
"""Comparisons and selections of a thread in an iteration from which on the iterations that do not need them
get a loop of their own: it doubles the code."""
ITERATIONS_AT_ONCE = 4
"""Iterations of a loop up to which they become straight code, with all loads in flight."""

# -- from where on a rewriting takes fewer instructions ------------------------------------------------------

LOOP_POINTER_ACCESSES = (4, 12)
"""Accesses through one carried pointer, fewest and most, that may have pointers of their own: for fewer it
gains next to nothing, more need too many registers."""
CARRIED_PREDICATES = 2
"""Booleans of a thread, accumulated by a loop, from which on they are words: of its seven predicates, loads
need one each for their masks."""
COMPARED_SUMS = 3
"""Comparisons of sums of one register with one bound from which on the bound is moved instead."""
QUOTIENTS_WORTH_A_BRANCH = 4
"""Quotients of a thread by one divisor from which on sharing the reciprocal takes fewer instructions, the
branch around it included."""
PRODUCTS_THAT_KEEP = 2
"""Products in a loop from which on a left operand that is the same in all iterations is read from shared
memory: the assembler gives its registers away otherwise (``warpgroup_dots``, KEPT)."""
STORES_RIGHT_OPERANDS = True
"""Whether threads store a right operand that they compute, for ``wgmma`` to read it; else ``mma.sync`` does
such products."""
STORES_LEFT_OPERANDS = True
"""Whether threads store the left operand of such a product, too; else it stays in registers."""
COLUMNS_WORTH_A_STORE = 64
"""Columns of a warpgroup's sums from which on ``wgmma`` makes up for the store of a right operand."""
WRITTEN_OUT_INSTRUCTIONS = 1600
"""Instructions of a thread, an operation on one of its elements counting as one, up to which iterations of a
``while`` whose number is known stand one after the other."""
EXPONENTIALS_WORTH_A_BRANCH = 8
"""Exponentials of a thread from which on it is worth a branch to skip the instructions for tiny results."""
EXPONENTIALS_TOGETHER = 128
"""Exponentials of a thread at most that one such branch is for: its test needs all arguments at once, and the
assembler takes long for what does not fit into registers."""
MINIMA_SIDE_BY_SIDE = 4
"""Minima of arguments that this test takes side by side: they hide an instruction's latency, 4 cycles."""
ANGLES_TOGETHER = 8
"""Arguments of sines, cosines and tangents in a thread whose large ones share a branch: each takes three
registers across it."""
LANES_SCANNED_AT_ONCE = 3
"""Lane bits of a scan from which on scanning them at once takes fewer instructions than one by one."""
