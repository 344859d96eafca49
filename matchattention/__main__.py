"""`python -m matchattention`: the command line."""

import sys

from matchattention.cli.main import main

sys.exit(main())
