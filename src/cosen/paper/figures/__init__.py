"""The paper's figures, drawn with matplotlib.

Each ``draw_...`` function takes plain values and returns a :class:`matplotlib.figure.Figure`.
:func:`cosen.paper.figures.style.write_figure` writes it to files.

| file | figures | in the paper |
|---|---|---|
| ``class_counts.py`` | training images by class | Fig. intro, exp_set |
| ``loss_figures.py`` | losses by margin and over two outputs | Fig. SurrogateLF, loss_func |
| ``run_figures.py`` | confusion matrices; errors by epoch | Fig. CM, CIFAR_error |
| ``diagrams.py`` | the layers of a network; how θ and ξ are learned | Fig. cnn_arch, overview_fig |
"""
