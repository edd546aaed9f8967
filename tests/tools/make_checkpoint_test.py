"""quire-make-checkpoint and tools/make_checkpoint.py write the same bytes. Usage: PROGRAM SCRIPT"""

import filecmp
import pathlib
import subprocess
import sys
import tempfile

program, script = sys.argv[1:]
for arch in ("ocr1", "ocr2"):
    with tempfile.TemporaryDirectory() as folder:
        folders = [pathlib.Path(folder) / name for name in ("program", "script")]
        for maker, out in zip(([program], [sys.executable, script]), folders):
            subprocess.run([*maker, "--arch", arch, "--size", "small", "--seed", "11", str(out)], check=True)
        names = sorted(path.name for path in folders[0].iterdir())
        assert names == sorted(path.name for path in folders[1].iterdir()), names
        _, different, failed = filecmp.cmpfiles(*folders, names, shallow=False)
        assert not different and not failed, (arch, different, failed)
