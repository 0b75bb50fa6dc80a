import sys

from shelflife.cli import main

sys.exit(main())
