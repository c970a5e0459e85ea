"""The fixtures of model_store_fake.py."""

from model_store_fake import hub, model_folder, serve, store, web

__all__ = ["hub", "model_folder", "serve", "store", "web"]
