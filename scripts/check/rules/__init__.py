# SPDX-License-Identifier: LGPL-2.1-or-later
"""The house rules, by what they look at."""
