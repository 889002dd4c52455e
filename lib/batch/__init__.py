from lib.batch.runner import main as main
