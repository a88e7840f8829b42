"""Prints what two visitors of a Streamlit script see: ``python visit_streamlit.py FILE``."""

from __future__ import annotations

import os
import sys
import warnings

from streamlit.testing.v1 import AppTest

from tests.system.embedding.frameworks import children

# The garbage collector deletes Streamlit's directory of a visit, with a warning.
warnings.simplefilter("ignore", ResourceWarning)

visitors = [AppTest.from_file(sys.argv[1], default_timeout=60).run() for _ in range(2)]
for number, visitor in enumerate(visitors):
    visitor.number_input[0].set_value(40 + number).run()
    visitor.button[0].click().run()
    print("sum:", visitor.success[0].value)
    visitor.button[1].click().run()
    print("after the bar:", visitor.success[0].value)
    assert not visitor.exception
print("servers:", len(children(os.getpid())))
