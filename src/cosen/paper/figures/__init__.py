"""The paper's figures, drawn with matplotlib from what cosen computes, reads and records.

Each ``draw_...`` function takes plain values and gives a :class:`matplotlib.figure.Figure`; nothing
is written and no global state is touched. :func:`cosen.paper.figures.writing.write_figure` writes.

| file | what it draws | in the paper |
|---|---|---|
| ``frequencies.py`` | training images by class | Fig. intro, exp_set |
| ``surrogates.py`` | losses against the margin, under costs | Fig. SurrogateLF |
| ``loss_surface.py`` | the CE loss over two outputs, and who wins where | Fig. loss_func |
| ``confusion.py`` | confusion matrices | Fig. CM |
| ``errors.py`` | training and validation error by epoch | Fig. CIFAR_error |
| ``network.py`` | the layers of a network | Fig. cnn_arch |
| ``overview.py`` | how θ and ξ are learned in turn | Fig. overview_fig |
"""
