"""Cost-sensitive training as a scikit-learn classifier, for feature vectors and small images."""

from cosen.sklearn.classifier import CoSenClassifier

__all__ = ["CoSenClassifier"]
