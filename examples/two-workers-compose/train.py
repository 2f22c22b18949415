"""Train on all workers, and continue with the epoch that was interrupted."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = tf.random.stateless_uniform([4096, 8], seed=[1, 2])
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1))).batch(64)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input([8]), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss="mse")
backup = tf.keras.callbacks.BackupAndRestore("/checkpoints/backup")
model.fit(data, epochs=10, verbose=2, callbacks=[backup])
