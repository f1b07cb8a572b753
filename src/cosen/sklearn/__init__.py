"""Cost-sensitive training as a scikit-learn classifier, for feature vectors and small images."""

from cosen.sklearn.classifier import CosenClassifier

__all__ = ["CosenClassifier"]
