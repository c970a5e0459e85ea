# SPDX-License-Identifier: Apache-2.0
"""The report: JSON files of measurements in, one HTML page out. Pure; runs on the controller only."""
