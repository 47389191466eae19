import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    total = tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside)
    tl.store(out + i, total, mask=inside)


x = ptxforge.to_device(np.arange(5000, dtype=np.float32))
y = ptxforge.to_device(np.ones(5000, np.float32))
out = ptxforge.empty(5000, np.float32)
add[(ptxforge.cdiv(5000, 1024),)](x, y, out, 5000, BLOCK=1024)
print(out.numpy())
