"""Floor 5: the callable kernel: binding and specialising arguments, launching, the disk cache, tuning."""
