"""Ownership of the pixels of a split image, and plans of the pixels to exchange. Pure Python, without torch.

Vocabulary
----------
coordinates  Pixels have *global* coordinates: their position in the whole image, samples first (n, h, w). A box
             relative to another box has *local* coordinates: positions in the tensor that spans the other box
             (`Box.relative_to`). Everything in a plan is global.
interval     A half-open range of integers along one dim.
box          A product of intervals, one per dim. All ownership and all traffic is expressed in boxes.
window       A sliding window (convolution, pool, resampling): it maps an output box to the input box that it reads.
mesh         Workers in rows and columns, numbered row by row.
partition    The boxes that each worker owns. Usually each worker owns one box, its *tile* or *shard*.
need         The required input: the input box that a worker's part of the output reads. The part outside of the image
             is padding.
frame        The box that a worker's buffer spans: the need and, if padding repeats pixels, the repeated pixels.
halo         The pixels of a frame that other workers own. A `HaloPlan` lists the moves that fetch them.

The frame of worker 0, for a 3x3 window with padding 1 over an image that two workers share (columns 0-2 and 3-5):

        column  -1   0   1   2   3   4   5
                 .   .   .   .   .               . padding
                 .   0   0   0   h   1   1       0 owned by worker 0
                 .   0   0   0   h   1   1       h halo: owned by worker 1, read by worker 0
                 .   0   0   0   h   1   1       1 owned by worker 1
                 .   .   .   .   .
                 |<---- frame ---->|

Input and output are partitioned independently, so the plan needs no special rules for these cases:

1. A stride that does not line up with the tile boundaries: tiles of input and output have different edges.
2. An even kernel: the halo is wider on one side.
3. A halo wider than the neighbouring tile: pixels come from workers further away.
4. A change of partition, or a gather: an exchange with a window of one pixel (`Window.of_one_pixel`).
5. More workers than rows or columns: some workers own nothing, or compute nothing.
6. Circular padding: the position of a pixel in the frame differs from its position in the image.
"""

from tessera.geometry.box import Box, Interval
from tessera.geometry.halo import HaloPlan, Move
from tessera.geometry.mesh import Mesh
from tessera.geometry.partition import Partition
from tessera.geometry.window import Window

__all__ = ["Box", "HaloPlan", "Interval", "Mesh", "Move", "Partition", "Window"]
