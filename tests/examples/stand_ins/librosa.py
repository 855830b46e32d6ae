"""The functions of librosa 0.6 by which WaveNet's example reads and writes sounds, without resampling."""

import types
import wave

import numpy as np


def load(path, sr, res_type=None):
    """Return the samples of a file, and their rate."""
    with wave.open(path) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768, sr


def _melspectrogram(y, sr, n_fft, hop_length, n_mels):
    frames = 1 + len(y) // hop_length
    padded = np.pad(y, n_fft // 2, "reflect")
    parts = np.stack([padded[i * hop_length:i * hop_length + n_fft] for i in range(frames)], 1)
    power = np.abs(np.fft.rfft(parts, axis=0)[:n_mels * 4]) ** 2
    return power.reshape(n_mels, 4, -1).mean(axis=1)


def _write_wav(path, y, sr):
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sr)
        file.writeframes((y * 32767).astype(np.int16).tobytes())


def power_to_db(s, ref):
    """Return decibels, 80 below the largest at least."""
    db = 10 * np.log10(np.maximum(s, 1e-10) / max(ref(s), 1e-10))
    return np.maximum(db, db.max() - 80)


effects = types.SimpleNamespace(trim=lambda y, top_db: (y, None))
feature = types.SimpleNamespace(melspectrogram=_melspectrogram)
output = types.SimpleNamespace(write_wav=_write_wav)
